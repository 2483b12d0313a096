/** Tree objects as a scan makes them, of files that are only a path and a content each. */
import { createHash } from 'node:crypto';
import { encodeTree, type NamedEntry } from '@berth/wire/tree';

export type FakeTree = {
  digest: string;
  files: number;
  bytes: number;
  objects: Map<string, string>;
};

const sha256 = (text: string): string => createHash('sha256').update(text, 'latin1').digest('hex');
export const checksumOf = sha256;

/** `files`: encoded path -> content. */
export function fakeTree(files: Record<string, string>): FakeTree {
  const objects = new Map<string, string>();
  const folder = (under: string): { digest: string; files: number; bytes: number } => {
    const names = new Set(
      Object.keys(files)
        .filter((path) => path.startsWith(under))
        .map((path) => path.slice(under.length).split('/')[0] ?? ''),
    );
    const entries = [...names].sort().map((name): NamedEntry => {
      const content = files[under + name];
      if (content === undefined) return { kind: 'folder', name, ...folder(`${under}${name}/`) };
      return {
        kind: 'file',
        name,
        size: content.length,
        checksum: sha256(content),
        executable: false,
      };
    });
    return encodeTree(entries, { sha256, write: (digest, text) => void objects.set(digest, text) });
  };
  return { ...folder(''), objects };
}
