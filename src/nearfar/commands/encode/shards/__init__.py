"""``nearfar encode`` in shards: Parquet files of any number -> a folder of Parquet parts, by any number of workers."""
