// Original file: proto/parameters.proto


export interface ShardCheckpointNames {
  'names'?: (string)[];
}

export interface ShardCheckpointNames__Output {
  'names': (string)[];
}
