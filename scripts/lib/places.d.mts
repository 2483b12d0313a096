export const root: string;
export const toolsDir: string;
export const nodeProgram: string;
export const npmProgram: string;
