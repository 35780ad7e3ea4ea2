// Original file: proto/parameters.proto


export interface ShardId {
  'jobId'?: (string);
  'attempt'?: (number);
  'shard'?: (number);
}

export interface ShardId__Output {
  'jobId': (string);
  'attempt': (number);
  'shard': (number);
}
