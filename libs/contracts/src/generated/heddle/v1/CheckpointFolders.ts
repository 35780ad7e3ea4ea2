// Original file: proto/tasks.proto


export interface CheckpointFolders {
  'jobIds'?: (string)[];
}

export interface CheckpointFolders__Output {
  'jobIds': (string)[];
}
