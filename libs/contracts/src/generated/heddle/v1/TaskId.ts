// Original file: proto/tasks.proto


export interface TaskId {
  'jobId'?: (string);
  'attempt'?: (number);
  'rank'?: (number);
}

export interface TaskId__Output {
  'jobId': (string);
  'attempt': (number);
  'rank': (number);
}
