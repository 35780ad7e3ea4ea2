// Original file: proto/cluster.proto


export interface AttachReply {
  'heartbeatIntervalMs'?: (number);
  'masterId'?: (string);
  'members'?: (string)[];
  'cluster'?: (string);
  'addresses'?: (string)[];
}

export interface AttachReply__Output {
  'heartbeatIntervalMs': (number);
  'masterId': (string);
  'members': (string)[];
  'cluster': (string);
  'addresses': (string)[];
}
