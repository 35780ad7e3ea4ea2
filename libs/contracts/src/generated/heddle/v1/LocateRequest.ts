// Original file: proto/raft.proto


export interface LocateRequest {
}

export interface LocateRequest__Output {
}
