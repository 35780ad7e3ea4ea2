// Original file: proto/parameters.proto


export interface ForgetJobReply {
}

export interface ForgetJobReply__Output {
}
