// Original file: proto/cluster.proto

import type { RevokedNode as _heddle_v1_RevokedNode, RevokedNode__Output as _heddle_v1_RevokedNode__Output } from '../../heddle/v1/RevokedNode.ts';

export interface AttachReply {
  'heartbeatIntervalMs'?: (number);
  'masterId'?: (string);
  'members'?: (string)[];
  'cluster'?: (string);
  'addresses'?: (string)[];
  'revoked'?: (_heddle_v1_RevokedNode)[];
}

export interface AttachReply__Output {
  'heartbeatIntervalMs': (number);
  'masterId': (string);
  'members': (string)[];
  'cluster': (string);
  'addresses': (string)[];
  'revoked': (_heddle_v1_RevokedNode__Output)[];
}
