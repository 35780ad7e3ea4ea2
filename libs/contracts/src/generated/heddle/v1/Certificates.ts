// Original file: proto/enrollment.proto


export interface Certificates {
  'certificate'?: (string);
  'authority'?: (string);
  'authorityKey'?: (string);
}

export interface Certificates__Output {
  'certificate': (string);
  'authority': (string);
  'authorityKey': (string);
}
