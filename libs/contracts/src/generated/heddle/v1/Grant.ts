// Original file: proto/worker.proto


export interface Grant {
  'id'?: (number);
  'events'?: (number);
}

export interface Grant__Output {
  'id': (number);
  'events': (number);
}
