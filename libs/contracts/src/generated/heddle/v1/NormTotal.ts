// Original file: proto/parameters.proto


export interface NormTotal {
  'squares'?: (number | string);
}

export interface NormTotal__Output {
  'squares': (number);
}
