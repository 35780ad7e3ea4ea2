// Original file: proto/parameters.proto


export interface LostWorker {
  'jobId'?: (string);
  'attempt'?: (number);
  'rank'?: (number);
  'incarnation'?: (number);
}

export interface LostWorker__Output {
  'jobId': (string);
  'attempt': (number);
  'rank': (number);
  'incarnation': (number);
}
