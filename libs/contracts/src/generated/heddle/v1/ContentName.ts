// Original file: proto/documents.proto


export interface ContentName {
  'digest'?: (string);
}

export interface ContentName__Output {
  'digest': (string);
}
