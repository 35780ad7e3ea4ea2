// Original file: proto/raft.proto


export interface GroupMember {
  'id'?: (number);
  'name'?: (string);
  'address'?: (string);
  'nonce'?: (string);
}

export interface GroupMember__Output {
  'id': (number);
  'name': (string);
  'address': (string);
  'nonce': (string);
}
