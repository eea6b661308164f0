-- The tables of duckdb.sql for Trino with the Hive connector; not run by the tests. Replace LAKE by
-- the folder that holds `v1`, and name the columns that you need.

CREATE SCHEMA IF NOT EXISTS hive.flatcap;

-- One table per source and tier, here the hot objects of `load`. The table `hour` is the same with
-- LAKE/v1/hour.
CREATE TABLE IF NOT EXISTS hive.flatcap.load_hot (
    time TIMESTAMP(6), wall_ns BIGINT, mono_ns BIGINT, duration_ns BIGINT, seq BIGINT, flags INTEGER,
    run VARCHAR, load1 DOUBLE, segment BIGINT, date VARCHAR, host VARCHAR
) WITH (
    external_location = 'LAKE/v1/hot/source=load', format = 'PARQUET',
    partitioned_by = ARRAY['date', 'host']
);
CREATE TABLE IF NOT EXISTS hive.flatcap.sources_hot (
    name VARCHAR, run VARCHAR, host_name VARCHAR, rows BIGINT, lost BIGINT, unreadable BIGINT,
    first_seq BIGINT, next_seq BIGINT, segment BIGINT, date VARCHAR, host VARCHAR
) WITH (
    external_location = 'LAKE/v1/hot/source=_sources', format = 'PARQUET',
    partitioned_by = ARRAY['date', 'host']
);
CALL hive.system.sync_partition_metadata('flatcap', 'load_hot', 'ADD');
CALL hive.system.sync_partition_metadata('flatcap', 'sources_hot', 'ADD');

-- `_sources` is put after the samples and before the manifest, so its rows show
-- almost as reliably as manifests which segments are complete.
SELECT hot.*
FROM hive.flatcap.load_hot AS hot
WHERE EXISTS (
    SELECT 1 FROM hive.flatcap.sources_hot AS known
    WHERE known.host = hot.host AND known.run = hot.run AND known.segment = hot.segment
);
