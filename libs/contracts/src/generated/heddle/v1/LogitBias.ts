// Original file: proto/worker.proto


export interface LogitBias {
  'token'?: (number);
  'bias'?: (number | string);
}

export interface LogitBias__Output {
  'token': (number);
  'bias': (number);
}
