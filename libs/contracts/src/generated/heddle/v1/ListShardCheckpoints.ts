// Original file: proto/parameters.proto


export interface ListShardCheckpoints {
  'jobId'?: (string);
}

export interface ListShardCheckpoints__Output {
  'jobId': (string);
}
