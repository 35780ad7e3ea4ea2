// Original file: proto/raft.proto

import type { GroupMember as _heddle_v1_GroupMember, GroupMember__Output as _heddle_v1_GroupMember__Output } from '../../heddle/v1/GroupMember.ts';

export interface IntroductionReply {
  'name'?: (string);
  'nonce'?: (string);
  'peers'?: (string)[];
  'cluster'?: (string);
  'id'?: (number);
  'members'?: (_heddle_v1_GroupMember)[];
  'lastId'?: (number);
  'votes'?: (boolean);
  'supports'?: (number);
  'secretsKeys'?: (string)[];
}

export interface IntroductionReply__Output {
  'name': (string);
  'nonce': (string);
  'peers': (string)[];
  'cluster': (string);
  'id': (number);
  'members': (_heddle_v1_GroupMember__Output)[];
  'lastId': (number);
  'votes': (boolean);
  'supports': (number);
  'secretsKeys': (string)[];
}
