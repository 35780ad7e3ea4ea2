// Original file: proto/raft.proto

export const RaftMessageType = {
  MsgUnspecified: 'MsgUnspecified',
  MsgProp: 'MsgProp',
  MsgApp: 'MsgApp',
  MsgAppResp: 'MsgAppResp',
  MsgVote: 'MsgVote',
  MsgVoteResp: 'MsgVoteResp',
  MsgSnap: 'MsgSnap',
  MsgHeartbeat: 'MsgHeartbeat',
  MsgHeartbeatResp: 'MsgHeartbeatResp',
  MsgTransferLeader: 'MsgTransferLeader',
  MsgTimeoutNow: 'MsgTimeoutNow',
  MsgReadIndex: 'MsgReadIndex',
  MsgReadIndexResp: 'MsgReadIndexResp',
  MsgPreVote: 'MsgPreVote',
  MsgPreVoteResp: 'MsgPreVoteResp',
} as const;

export type RaftMessageType =
  | 'MsgUnspecified'
  | 0
  | 'MsgProp'
  | 1
  | 'MsgApp'
  | 2
  | 'MsgAppResp'
  | 3
  | 'MsgVote'
  | 4
  | 'MsgVoteResp'
  | 5
  | 'MsgSnap'
  | 6
  | 'MsgHeartbeat'
  | 7
  | 'MsgHeartbeatResp'
  | 8
  | 'MsgTransferLeader'
  | 9
  | 'MsgTimeoutNow'
  | 10
  | 'MsgReadIndex'
  | 11
  | 'MsgReadIndexResp'
  | 12
  | 'MsgPreVote'
  | 13
  | 'MsgPreVoteResp'
  | 14

export type RaftMessageType__Output = typeof RaftMessageType[keyof typeof RaftMessageType]
