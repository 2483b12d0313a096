// Builds small root file systems from this machine's own programs, where no image hub can be
// reached.
import { copyFile, cp, chmod, mkdir, realpath, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { extraCertificates, findProgram, toolsDir } from './config.ts';
import { run } from './process.ts';

/**
 * Builds `busybox:stable`: one static program under all its names. @throws when busybox-static is
 * not installed
 */
export async function layBusybox(
  root: string,
  skip: ReadonlySet<string> = new Set(),
): Promise<void> {
  const busybox = findProgram('busybox');
  if (busybox === undefined)
    throw new Error('busybox-static is not installed (npm run setup installs it)');
  for (const folder of [
    'bin',
    'sbin',
    'etc',
    'root',
    'tmp',
    'usr',
    'usr/bin',
    'usr/sbin',
    'usr/local/bin',
    'var',
    'var/tmp',
    'home',
    'dev',
    'proc',
    'sys',
  ]) {
    await mkdir(join(root, folder), { recursive: true });
  }
  for (const folder of ['tmp', 'var/tmp']) await chmod(join(root, folder), 0o1777);
  await copyFile(busybox, join(root, 'bin/busybox'));
  await chmod(join(root, 'bin/busybox'), 0o755);
  const applets = (await run([busybox, '--list-full'])).stdout
    .split('\n')
    .filter((path) => path !== '');
  const named = new Set(applets.map((path) => path.slice(path.lastIndexOf('/') + 1)));
  for (const name of named) {
    if (name !== 'busybox' && !skip.has(name))
      await symlink('/bin/busybox', join(root, 'bin', name));
  }
  // Scripts begin with #!/usr/bin/env.
  await symlink('/bin/busybox', join(root, 'usr/bin/env'));
  await writeFile(
    join(root, 'etc/passwd'),
    'root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var/www:/bin/false\nnode:x:1000:1000::/home/node:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n',
  );
  await writeFile(
    join(root, 'etc/group'),
    'root:x:0:\nwww-data:x:33:\nnode:x:1000:\nnogroup:x:65534:\n',
  );
  await writeFile(join(root, 'etc/nsswitch.conf'), 'hosts: files dns\n');
}

/**
 * Builds `node:24-slim`: Node and npm of .tools with their shared libraries, and busybox as the
 * rest of the system.
 */
export async function layNode(root: string): Promise<void> {
  await layBusybox(root);
  const node = await realpath(join(toolsDir, 'node', 'bin', 'node'));
  await copyFile(node, join(root, 'usr/local/bin/node'));
  await copyLibraries(node, root);
  const npm = await realpath(join(toolsDir, 'node', 'lib', 'node_modules', 'npm'));
  await cp(npm, join(root, 'usr/local/lib/node_modules/npm'), { recursive: true });
  for (const name of ['npm', 'npx']) {
    await symlink(`../lib/node_modules/npm/bin/${name}-cli.js`, join(root, 'usr/local/bin', name));
  }
  await mkdir(join(root, 'home/node'), { recursive: true });
  await layCertificates(root);
}

/**
 * Copies the certificates that the machine trusts (it can be behind a proxy with its own
 * authority). They exist only in the image.
 */
async function layCertificates(root: string): Promise<void> {
  const file = extraCertificates() ?? '/etc/ssl/certs/ca-certificates.crt';
  await mkdir(join(root, 'etc/ssl/certs'), { recursive: true });
  await copyFile(file, join(root, 'etc/ssl/certs/ca-certificates.crt'));
}

/** Copies the shared libraries and the loader of a program to the same paths below `root`. */
async function copyLibraries(program: string, root: string): Promise<void> {
  const listed = (await run(['ldd', program])).stdout;
  const paths = listed.split('\n').flatMap((line) => /(\/\S+)\s+\(0x/.exec(line)?.[1] ?? []);
  if (paths.length === 0) throw new Error(`ldd found no libraries of ${program}`);
  const copies = new Set(paths);
  // glibc before 2.34 loads these without naming them, to resolve host names.
  const libc = paths.find((path) => path.includes('libc.so'));
  if (libc !== undefined)
    for (const name of ['libnss_dns.so.2', 'libnss_files.so.2', 'libresolv.so.2'])
      copies.add(join(dirname(libc), name));
  for (const path of copies) {
    await mkdir(join(root, dirname(path)), { recursive: true });
    try {
      await copyFile(path, join(root, path));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || paths.includes(path)) throw error;
    }
  }
}
