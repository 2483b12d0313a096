/** Set-up unpacks programs that lie beside the checkout. */
import { execFileSync } from 'node:child_process';
import { closeSync, existsSync, openSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { findProgram, repositoryRoot } from '@berth/testbed/config';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

type Packed = {
  unpackProgram(packed: string, target: string, check: string[]): Promise<string | undefined>;
};
const { unpackProgram } = (await import(
  pathToFileURL(join(repositoryRoot, 'scripts', 'lib', 'packed.mjs')).href
)) as Packed;
const xz = findProgram('xz');

describe.skipIf(xz === undefined)(
  `a packed program${xz === undefined ? ' (skipped: no xz)' : ''}`,
  () => {
    let dir: string;
    let target: string;
    beforeEach(async () => {
      dir = await mkdtemp(join(tmpdir(), 'berth-packed-'));
      target = join(dir, 'tools', 'hello');
    });
    afterEach(() => rm(dir, { recursive: true, force: true }));

    async function pack(program: string): Promise<string> {
      await writeFile(join(dir, 'hello'), program);
      execFileSync(xz as string, [join(dir, 'hello')]);
      return join(dir, 'hello.xz');
    }

    it('replaces an older one and runs', async () => {
      expect(
        await unpackProgram(await pack('#!/bin/sh\necho one\n'), target, ['--version']),
      ).toBeUndefined();
      await rm(join(dir, 'hello.xz'));
      expect(
        await unpackProgram(await pack('#!/bin/sh\necho two\n'), target, ['--version']),
      ).toBeUndefined();
      expect(execFileSync(target, { encoding: 'utf8' })).toBe('two\n');
    });

    it('that another process has open for writing for a moment is run after that', async () => {
      const packed = await pack('#!/bin/sh\necho three\n');
      await mkdir(join(dir, 'tools'));
      const held = openSync(`${target}.new`, 'w');
      setTimeout(() => closeSync(held), 500);
      expect(await unpackProgram(packed, target, [])).toBe(undefined);
      expect(execFileSync(target, { encoding: 'utf8' })).toBe('three\n');
    });

    it('that is cut off, or does not run here, leaves nothing behind and says why', async () => {
      const packed = await pack('#!/bin/sh\necho this program ends at once\n');
      const cut = join(dir, 'cut.xz');
      await writeFile(cut, (await readFile(packed)).subarray(0, -20));
      expect(await unpackProgram(cut, target, [])).toMatch(/cannot unpack .*cut\.xz: /);
      await rm(packed);
      const failing = await pack('#!/bin/sh\necho wrong kind of machine\nexit 1\n');
      expect(await unpackProgram(failing, target, [])).toMatch(
        /does not run on this machine:\n.*wrong kind of machine/,
      );
      expect([existsSync(target), existsSync(`${target}.new`)]).toEqual([false, false]);
    });
  },
);
