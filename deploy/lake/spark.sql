-- The views of duckdb.sql for Spark SQL; not run by the tests. Replace LAKE by the folder that holds
-- `v1`. Spark discovers `date` and `host` in the names of folders below each source.

CREATE OR REPLACE TEMPORARY VIEW lake_manifests
USING json OPTIONS (path 'LAKE/v1/_segments');
CREATE OR REPLACE TEMPORARY VIEW lake_hours
USING json OPTIONS (path 'LAKE/v1/_hours');

CREATE OR REPLACE TEMPORARY VIEW lake_merged AS
SELECT DISTINCT identity.id AS host, run, explode(segments) AS segment
FROM lake_hours
WHERE kind = 'hour';

-- The rows of one source, here `cpu`: of complete segments, each once. Before the first compaction
-- there is no folder `hour`; leave out its part.
CREATE OR REPLACE TEMPORARY VIEW cpu_hot
USING parquet OPTIONS (path 'LAKE/v1/hot/source=cpu', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW cpu_hour
USING parquet OPTIONS (path 'LAKE/v1/hour/source=cpu', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW cpu AS
SELECT hot.* FROM cpu_hot AS hot
LEFT SEMI JOIN lake_manifests AS known
    ON known.identity.id = hot.host AND known.run = hot.run AND known.segment = hot.segment
LEFT ANTI JOIN lake_merged AS merged
    ON merged.host = hot.host AND merged.run = hot.run AND merged.segment = hot.segment
UNION ALL
SELECT hour.* FROM cpu_hour AS hour
LEFT SEMI JOIN lake_merged AS merged
    ON merged.host = hour.host AND merged.run = hour.run AND merged.segment = hour.segment;
