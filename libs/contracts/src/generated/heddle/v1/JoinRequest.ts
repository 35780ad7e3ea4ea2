// Original file: proto/enrollment.proto


export interface JoinRequest {
  'secret'?: (string);
  'role'?: (string);
  'name'?: (string);
  'csr'?: (string);
}

export interface JoinRequest__Output {
  'secret': (string);
  'role': (string);
  'name': (string);
  'csr': (string);
}
