// Original file: proto/worker.proto


export interface SentChoice {
  'tokens'?: (number)[];
  'characters'?: (number);
  'finished'?: (boolean);
  'cut'?: (boolean);
}

export interface SentChoice__Output {
  'tokens': (number)[];
  'characters': (number);
  'finished': (boolean);
  'cut': (boolean);
}
