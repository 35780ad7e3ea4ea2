// Original file: proto/worker.proto


export interface Reading {
  'count'?: (number);
  'tokens'?: (number)[];
  'pieces'?: (string)[];
  'text'?: (string);
  '_text'?: "text";
}

export interface Reading__Output {
  'count': (number);
  'tokens': (number)[];
  'pieces': (string)[];
  'text'?: (string);
  '_text'?: "text";
}
