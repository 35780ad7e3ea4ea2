// Original file: proto/worker.proto


export interface Cancel {
  'id'?: (number);
}

export interface Cancel__Output {
  'id': (number);
}
