// Original file: proto/worker.proto


export interface Finish {
  'choice'?: (number);
  'reason'?: (string);
  'stop'?: (string);
  '_stop'?: "stop";
}

export interface Finish__Output {
  'choice': (number);
  'reason': (string);
  'stop'?: (string);
  '_stop'?: "stop";
}
