// Original file: proto/raft.proto


export interface SnapshotReply {
}

export interface SnapshotReply__Output {
}
