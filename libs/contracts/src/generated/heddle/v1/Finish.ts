// Original file: proto/worker.proto


export interface Finish {
  'choice'?: (number);
  'reason'?: (string);
}

export interface Finish__Output {
  'choice': (number);
  'reason': (string);
}
