//! Tests answers about small recordings with known content, which another writer has written.

use std::path::Path;

use flatcap_promql::{Engine, EvaluationOptions, QueryValue, TimeGrid};
use flatcap_query::Recording;

/// Returns the sorted values of an expression at a number of seconds after the begin of a
/// recording.
fn values(recording: &str, expression: &str, at_s: i64) -> Vec<f64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/answers").join(recording);
    let engine = Engine::new(Recording::open(&[path]).unwrap());
    let time_ms = (1_700_000_000 + at_s) * 1000;
    let grid = TimeGrid::range(time_ms, time_ms, 1000).unwrap();
    let answer = engine.evaluate(expression, grid, &EvaluationOptions::default()).unwrap();
    let QueryValue::Vector(series) = answer.value else { panic!("{expression}") };
    let mut found: Vec<f64> = series.iter().filter_map(|own| own.values[0]).collect();
    found.sort_by(f64::total_cmp);
    found
}

// Proves that elements whose names are printed alike are separate series. The names are `x` with
// the byte 0xc3, and the string `x\xc3`.
#[test]
fn elements_with_bytes_in_their_names_are_series() {
    let found = values("odd_elements", "flatcap_raw_l_c_total", 0);
    assert_eq!(found, [0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0]);
}

// Proves that a field that is a list in only one run is two metrics, one for each form, and that
// neither metric has the values of the other one.
#[test]
fn a_field_may_be_a_list_in_one_run() {
    let of =
        |at_s: i64| ["flatcap_app_z", "flatcap_app_z_2"].map(|name| values("list_in_one_run", name, at_s));
    let mut early = of(2);
    early.sort_by_key(Vec::len);
    assert_eq!(early, [vec![], vec![11.0]]);
    let mut late = of(12);
    late.sort_by_key(Vec::len);
    assert_eq!(late, [vec![], vec![3.0, 4.0]]);
}

// Proves that metrics of two sources whose fields have the same path have only their own values,
// also in one selector.
#[test]
fn metrics_of_one_path_are_of_their_sources() {
    for (expression, expected) in [
        ("flatcap_db_pool_size", vec![3.0]),
        ("flatcap_db_pool_size_2", vec![102.0]),
        ("{__name__=~\"flatcap_db_pool_size.*\"}", vec![3.0, 102.0]),
    ] {
        assert_eq!(values("dotted_names", expression, 3), expected, "{expression}");
    }
}
