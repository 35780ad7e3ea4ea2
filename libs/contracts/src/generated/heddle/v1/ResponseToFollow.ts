// Original file: proto/responses.proto


export interface ResponseToFollow {
  'id'?: (string);
  'owner'?: (string);
  'from'?: (number);
}

export interface ResponseToFollow__Output {
  'id': (string);
  'owner': (string);
  'from': (number);
}
