// Original file: proto/raft.proto


export interface ProgressRequest {
}

export interface ProgressRequest__Output {
}
