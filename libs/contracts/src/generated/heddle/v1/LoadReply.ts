// Original file: proto/worker.proto


export interface LoadReply {
}

export interface LoadReply__Output {
}
