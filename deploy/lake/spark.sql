-- The views of duckdb.sql for Spark SQL 4. Replace LAKE by the folder that holds `v1`, and `cpu` by
-- a source (its table: `cpu`, `_gaps`). Each query looks for new objects and columns.

-- The manifests of segments and hours.
CREATE OR REPLACE TEMPORARY VIEW lake_manifests AS
SELECT manifest.*
FROM (
    SELECT from_json(value, '
        kind STRING, run STRING, segment BIGINT, segments ARRAY<BIGINT>,
        identity STRUCT<id: STRING, name: STRING, boot_id: STRING, labels: MAP<STRING, STRING>>,
        agent_version STRING, first_wall_ns BIGINT, last_wall_ns BIGINT,
        rows BIGINT, lost BIGINT, unreadable BIGINT') AS manifest
    FROM text.`LAKE/v1/_{segments,hours}` WITH (
        recursiveFileLookup = 'true', pathGlobFilter = '????????????????-*.json', wholetext = 'true'
    )
);

-- The segments that are complete, each with whether it was merged into an hour.
CREATE OR REPLACE TEMPORARY VIEW lake_segments AS
WITH merged AS (
    SELECT DISTINCT identity.id AS host, run, explode(segments) AS segment
    FROM lake_manifests
    WHERE kind = 'hour'
)
SELECT
    shipped.identity.id AS host, shipped.run, shipped.segment,
    merged.segment IS NOT NULL AS is_merged
FROM lake_manifests AS shipped
LEFT JOIN merged
    ON merged.host = shipped.identity.id AND merged.run = shipped.run
    AND merged.segment = shipped.segment
WHERE shipped.kind = 'segment';

-- The rows of a source: of complete segments, each row once. `date` and `host` are of the object's
-- path, since Spark would take a host named 007 for a number. Conditions on them read only these
-- folders.
CREATE OR REPLACE TEMPORARY VIEW `cpu` AS
WITH found AS (
    SELECT
        *,
        to_date(regexp_extract(_metadata.file_path, '/date=([^/]+)/host=[^/]+/[^/]+$', 1)) AS date,
        regexp_extract(_metadata.file_path, '/host=([^/]+)/[^/]+$', 1) AS host,
        _metadata.file_path LIKE '%/v1/hour/source=%' AS is_hourly
    FROM parquet.`LAKE/v1/{hot,hour}/source=cpu` WITH (
        recursiveFileLookup = 'true', pathGlobFilter = '????????????????-*.parquet',
        mergeSchema = 'true'
    )
)
SELECT found.* EXCEPT (is_hourly)
FROM found
LEFT SEMI JOIN lake_segments AS known
    ON known.host = found.host AND known.run = found.run AND known.segment = found.segment
    AND known.is_merged = found.is_hourly;
