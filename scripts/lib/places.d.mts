export const root: string;
export const toolsDir: string;
export const pluginsDir: string;
export const nodeProgram: string;
export const npmProgram: string;
