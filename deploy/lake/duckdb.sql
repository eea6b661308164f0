-- Questions to a lake of flatcap in DuckDB (docs/LAKE.md). Load with `.read duckdb.sql`. `lake` is
-- the folder that holds `v1`, without a slash at its end: '/srv/lake', or 's3://bucket/prefix' with
-- the extension httpfs.

-- All manifests: of segments, snapshots and hours. Names of other programs do not begin with a run,
-- which has 16 digits.
CREATE OR REPLACE MACRO lake_manifests(lake) AS TABLE
SELECT *
FROM read_json(
    lake || '/v1/_[hs]*/date=*/host=*/????????????????-*.json',
    format = 'unstructured', maximum_object_size = 16777216, hive_partitioning = false,
    columns = {
        kind: 'VARCHAR', converter: 'VARCHAR', run: 'VARCHAR', segment: 'BIGINT', snapshot: 'VARCHAR',
        segments: 'BIGINT[]', file: 'VARCHAR',
        identity: 'STRUCT(id VARCHAR, "name" VARCHAR, boot_id VARCHAR, labels MAP(VARCHAR, VARCHAR))',
        agent_version: 'VARCHAR', created: 'TIMESTAMPTZ',
        clocks: 'STRUCT(mono_ns BIGINT, boot_ns BIGINT, wall_ns BIGINT)',
        first_wall_ns: 'BIGINT', last_wall_ns: 'BIGINT', recovered: 'BOOLEAN', raw_bytes: 'BIGINT',
        digest: 'VARCHAR', "rows": 'BIGINT', lost: 'BIGINT', unreadable: 'BIGINT',
        sources: 'STRUCT(source VARCHAR, "table" VARCHAR, period_ns BIGINT, first_seq BIGINT,
            next_seq BIGINT, "rows" BIGINT, recorded BIGINT, lost BIGINT, thinned BIGINT,
            missed BIGINT, unreadable BIGINT, problem VARCHAR)[]',
        objects: 'STRUCT("name" VARCHAR, "rows" BIGINT, bytes BIGINT)[]',
        damage: 'STRUCT("offset" BIGINT, length BIGINT, what VARCHAR)[]'
    })
WHERE kind IN ('segment', 'snapshot', 'hour');

-- The segments that are complete, each with the hour that it was merged into, if it was.
CREATE OR REPLACE MACRO lake_segments(lake) AS TABLE
WITH manifests AS MATERIALIZED (FROM lake_manifests(lake)),
merged AS (
    SELECT DISTINCT identity.id AS host, run, unnest(segments) AS segment
    FROM manifests
    WHERE kind = 'hour'
)
SELECT
    shipped.identity.id AS host, shipped.run, shipped.segment,
    merged.segment IS NOT NULL AS is_merged
FROM manifests AS shipped
LEFT JOIN merged
    ON merged.host = shipped.identity.id AND merged.run = shipped.run
    AND merged.segment = shipped.segment
WHERE shipped.kind = 'segment';

-- The rows of a source (its table: `cpu`, `_gaps`): of complete segments, each row once. Conditions
-- on `host` and `date` read only these folders. A segment goes on after midnight: a day is complete
-- with the `date` before it.
CREATE OR REPLACE MACRO lake_rows(lake, source_table) AS TABLE
SELECT found.* EXCLUDE (filename)
FROM read_parquet(
    lake || '/v1/ho*/source=' || source_table || '/date=*/host=*/????????????????-*.parquet',
    hive_partitioning = true, hive_types = {'date': DATE, 'host': VARCHAR, 'source': VARCHAR},
    union_by_name = true, filename = true) AS found
SEMI JOIN lake_segments(lake) AS known
    ON known.host = found.host AND known.run = found.run AND known.segment = found.segment
    AND known.is_merged = (position('/v1/hour/' IN found.filename) > 0);

-- The samples of snapshots, at the rate of the ring.
CREATE OR REPLACE MACRO lake_snapshot_rows(lake, source_table) AS TABLE
SELECT *
FROM read_parquet(
    lake || '/v1/snapshot/source=' || source_table || '/date=*/host=*/????????????????-*.parquet',
    hive_partitioning = true, hive_types = {'date': DATE, 'host': VARCHAR, 'source': VARCHAR},
    union_by_name = true);

-- Each host as of its last segment: which is which.
CREATE OR REPLACE MACRO lake_hosts(lake) AS TABLE
SELECT
    identity.id AS host,
    arg_max(identity.name, last_wall_ns) AS name,
    arg_max(identity.labels, last_wall_ns) AS labels,
    arg_max(agent_version, last_wall_ns) AS agent_version,
    count(*) AS segments, sum("rows") AS "rows", sum(lost) AS lost, sum(unreadable) AS unreadable,
    make_timestamp_ns(max(last_wall_ns)) AS last_sample
FROM lake_manifests(lake)
WHERE kind = 'segment'
GROUP BY ALL
ORDER BY name, host;

-- What is missing. No row: between the first and the last segment of each run, rows and gaps
-- account for every number of every source.
CREATE OR REPLACE MACRO lake_missing(lake) AS TABLE
WITH per_source AS (
    SELECT identity.id AS host, run, segment, unnest(sources, recursive := true)
    FROM lake_manifests(lake)
    WHERE kind = 'segment'
),
ordered AS (
    SELECT
        *, lag(segment) OVER by_number AS before_segment,
        lag(next_seq) OVER by_number AS before_seq
    FROM per_source
    WHERE problem NOT LIKE 'several%'
    WINDOW by_number AS (PARTITION BY host, run, source ORDER BY segment)
)
SELECT
    host, run, segment, source,
    CASE WHEN before_segment <> segment - 1 THEN 'segments are missing before this one'
        ELSE 'numbers are missing' END AS what,
    first_seq - before_seq AS between_segments,
    next_seq - first_seq - "rows" - lost - thinned - unreadable AS inside
FROM ordered
WHERE first_seq > before_seq
    OR (problem NOT LIKE 'no schema%'
        AND next_seq - first_seq > "rows" + lost + thinned + unreadable);

-- Seconds in which at least two hosts waited for I/O: the share of time in which some task did
-- (PSI), by the source `pressure`, of at least a percentage.
CREATE OR REPLACE MACRO lake_stalled(lake, percent) AS TABLE
WITH totals AS (
    SELECT
        host, run, date_trunc('second', time) AS second, max("io_some.total") AS total_us
    FROM lake_rows(lake, 'pressure')
    GROUP BY ALL
),
shares AS (
    SELECT
        host, second,
        (total_us - lag(total_us) OVER by_time) / 1e4
            / epoch(second - lag(second) OVER by_time) AS share
    FROM totals
    WINDOW by_time AS (PARTITION BY host, run ORDER BY second)
)
SELECT
    second, count(*) AS hosts, max(share) AS largest_percent, list(host ORDER BY share DESC) AS which
FROM shares
WHERE share >= percent
GROUP BY second
HAVING count(*) >= 2
ORDER BY second;
