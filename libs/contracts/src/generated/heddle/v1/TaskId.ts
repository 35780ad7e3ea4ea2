// Original file: proto/tasks.proto


export interface TaskId {
  'jobId'?: (string);
  'attempt'?: (number);
  'rank'?: (number);
  'incarnation'?: (number);
}

export interface TaskId__Output {
  'jobId': (string);
  'attempt': (number);
  'rank': (number);
  'incarnation': (number);
}
