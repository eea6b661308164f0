-- The views of duckdb.sql for DataFusion. Replace LAKE by the folder that holds `v1`, and `cpu` by
-- a source (its table: `cpu`, `_gaps`). Each query looks for new objects; for new columns, run this
-- again.

-- Lists of objects that are as old as the first query would not fit manifests that are new.
SET datafusion.runtime.list_files_cache_limit = '0K';

-- The manifests of segments and hours.
CREATE OR REPLACE EXTERNAL TABLE lake_shipped (
    kind VARCHAR, run VARCHAR, segment BIGINT, identity STRUCT<id VARCHAR, name VARCHAR>,
    agent_version VARCHAR, first_wall_ns BIGINT, last_wall_ns BIGINT,
    rows BIGINT, lost BIGINT, unreadable BIGINT
)
STORED AS JSON LOCATION 'LAKE/v1/_segments/';
CREATE OR REPLACE EXTERNAL TABLE lake_hours (
    kind VARCHAR, run VARCHAR, segments BIGINT[], identity STRUCT<id VARCHAR, name VARCHAR>
)
STORED AS JSON LOCATION 'LAKE/v1/_hours/';

-- The segments that are complete, each with whether it was merged into an hour.
CREATE OR REPLACE VIEW lake_segments AS
WITH merged AS (
    SELECT DISTINCT identity['id'] AS host, run, unnest(segments) AS segment
    FROM lake_hours
    WHERE kind = 'hour'
)
SELECT
    shipped.identity['id'] AS host, shipped.run, shipped.segment,
    merged.segment IS NOT NULL AS is_merged
FROM lake_shipped AS shipped
LEFT JOIN merged
    ON merged.host = shipped.identity['id'] AND merged.run = shipped.run
    AND merged.segment = shipped.segment
WHERE shipped.kind = 'segment';

-- The rows of a source: of complete segments, each row once. Conditions on `date` and `host` read
-- only these folders.
CREATE OR REPLACE EXTERNAL TABLE "cpu_hot"
STORED AS PARQUET PARTITIONED BY (date, host) LOCATION 'LAKE/v1/hot/source=cpu/';
CREATE OR REPLACE VIEW "cpu" AS
SELECT found.*
FROM "cpu_hot" AS found
LEFT SEMI JOIN lake_segments AS known
    ON known.host = found.host AND known.run = found.run AND known.segment = found.segment
    AND NOT known.is_merged;

-- From the first compaction on, also this: until then there is no folder `hour`.
CREATE OR REPLACE EXTERNAL TABLE "cpu_hour"
STORED AS PARQUET PARTITIONED BY (date, host) LOCATION 'LAKE/v1/hour/source=cpu/';
CREATE OR REPLACE VIEW "cpu" AS
SELECT found.*
FROM "cpu_hot" AS found
LEFT SEMI JOIN lake_segments AS known
    ON known.host = found.host AND known.run = found.run AND known.segment = found.segment
    AND NOT known.is_merged
UNION ALL BY NAME
SELECT found.*
FROM "cpu_hour" AS found
LEFT SEMI JOIN lake_segments AS known
    ON known.host = found.host AND known.run = found.run AND known.segment = found.segment
    AND known.is_merged;
