import type { Metafile, Plugin } from 'esbuild';

export const lightSchemas: Plugin;
export function bundleCommandLine(outdir: string): Promise<Metafile>;
export function bundleCommandLineFile(outfile: string): Promise<void>;
