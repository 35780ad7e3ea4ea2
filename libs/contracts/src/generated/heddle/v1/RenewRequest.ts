// Original file: proto/enrollment.proto


export interface RenewRequest {
  'csr'?: (string);
}

export interface RenewRequest__Output {
  'csr': (string);
}
