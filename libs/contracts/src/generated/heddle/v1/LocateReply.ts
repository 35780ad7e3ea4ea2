// Original file: proto/raft.proto


export interface LocateReply {
  'port'?: (number);
}

export interface LocateReply__Output {
  'port': (number);
}
