// Original file: proto/raft.proto


export interface IntroductionReply {
  'name'?: (string);
  'nonce'?: (string);
  'peers'?: (string)[];
  'cluster'?: (string);
  'id'?: (number);
}

export interface IntroductionReply__Output {
  'name': (string);
  'nonce': (string);
  'peers': (string)[];
  'cluster': (string);
  'id': (number);
}
