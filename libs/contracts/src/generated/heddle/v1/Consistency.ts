// Original file: proto/parameters.proto


export interface Consistency {
  'model'?: (string);
  'staleness'?: (number);
  'stragglerMs'?: (number);
  'compression'?: (string);
  'pullCompression'?: (string);
}

export interface Consistency__Output {
  'model': (string);
  'staleness': (number);
  'stragglerMs': (number);
  'compression': (string);
  'pullCompression': (string);
}
