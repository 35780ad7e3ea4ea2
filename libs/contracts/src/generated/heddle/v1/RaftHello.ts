// Original file: proto/raft.proto


export interface RaftHello {
  'cluster'?: (string);
  'from'?: (number);
  'to'?: (number);
  'incarnation'?: (number);
}

export interface RaftHello__Output {
  'cluster': (string);
  'from': (number);
  'to': (number);
  'incarnation': (number);
}
