/** Why a new container is not healthy: each sentence has the next step. */
import { expect, it } from 'vitest';
import {
  checkFailure,
  exitFailure,
  type ExitFacts,
  probeFailure,
  type ProbeFacts,
} from '../../src/engine/diagnosis.ts';
import { startHint } from '../../src/engine/start-failures.ts';

const facts: ProbeFacts = {
  containerPort: 8080,
  healthPath: null,
  probeSeconds: 5,
  last: null,
  listeners: null,
  exposed: [],
};
const on = (address: string, port: number) => ({
  address,
  port,
  loopback: address.startsWith('127.') || address === '::1',
});
const refused = { kind: 'refused' as const, message: 'connect ECONNREFUSED 10.0.0.1:32768' };
it.each<[Partial<ProbeFacts>, string, RegExp]>([
  [{}, 'probe_timeout', /no HTTP answer on port 8080 within 5 s/],
  [
    { listeners: [] },
    'container_not_listening',
    /no program listened within 5 s.*container port is 8080.*raise start_seconds/,
  ],
  [
    { listeners: [], exposed: [3000] },
    'container_not_listening',
    /the image exposes 3000 \(EXPOSE\)/,
  ],
  [
    { listeners: [on('0.0.0.0', 9090)] },
    'container_wrong_port',
    /listens on 0\.0\.0\.0:9090; .*read PORT, or set container_port to 9090$/,
  ],
  [
    { listeners: [on('0.0.0.0', 3000)], exposed: [3000] },
    'container_wrong_port',
    /exposes 3000 \(EXPOSE\)/,
  ],
  [
    { listeners: [on('0.0.0.0', 9090)], exposed: [8080] },
    'container_wrong_port',
    /^((?!EXPOSE).)*$/,
  ],
  [
    { listeners: [on('127.0.0.1', 9090)] },
    'container_wrong_port',
    /on the loopback address only.*listen on 0\.0\.0\.0 and read PORT/,
  ],
  [
    { listeners: [on('127.0.0.1', 8080), on('0.0.0.0', 9090)] },
    'container_loopback_only',
    /127\.0\.0\.1:8080.*make it listen on 0\.0\.0\.0:8080/,
  ],
  [
    { listeners: [on('::1', 8080)] },
    'container_loopback_only',
    /\[::1\]:8080; make it listen on 0\.0\.0\.0:8080/,
  ],
  [
    { listeners: [on('::', 8080)], last: refused },
    'probe_timeout',
    /listens on \[::\]:8080, but did not answer over IPv4.*ECONNREFUSED.*IPv6 only, make it listen on 0\.0\.0\.0:8080/,
  ],
  [
    { listeners: [on('fd00::1', 8080)], last: refused },
    'probe_timeout',
    /\[fd00::1\]:8080.*IPv6 only/,
  ],
  [
    { listeners: [on('::', 8080)], last: { kind: 'no_http', message: 'socket hang up' } },
    'probe_timeout',
    /did not answer HTTP within 5 s \(socket hang up\); it must answer HTTP without TLS there, over IPv4 too/,
  ],
  [
    { listeners: [on('127.0.0.1', 8080), on('0.0.0.0', 8080)] },
    'probe_timeout',
    /did not answer HTTP.*without TLS/,
  ],
  [
    { healthPath: '/ok', last: { kind: 'status', status: 500 }, listeners: [on('::', 8080)] },
    'health_check_failed',
    /GET \/ok was answered with status 500.*Correct health_path/,
  ],
])('the diagnosis of %o is %s', (given, code, message) => {
  const failure = probeFailure({ ...facts, ...given });
  expect(failure.code).toBe(code);
  expect(failure.message).toMatch(message);
});

const ended: ExitFacts = {
  memoryBytes: null,
  printed: '',
  containerPort: 8080,
  command: [],
  imageArch: 'amd64',
  nodeArch: 'amd64',
};
it.each<[number, Partial<ExitFacts> & { oomKilled?: boolean; error?: string }, RegExp]>([
  [
    137,
    { oomKilled: true, memoryBytes: 64 * 2 ** 20 },
    /out of memory: .*limit of 64 MiB; raise memory_bytes/,
  ],
  [137, { memoryBytes: 64 * 2 ** 20 }, /out of memory/],
  [137, {}, /it was killed; the node may be short of memory/],
  [0, {}, /exit code 0: its command ended without an error; a service must stay in the foreground/],
  [1, {}, /^The container exited unexpectedly: exit code 1$/],
  [126, { printed: '/bin/sh: /e.sh: Permission denied' }, /exit code 126: .*chmod/],
  [127, { printed: 'sh: gunicorn: not found' }, /exit code 127: a command was not found/],
  [255, { printed: 'exec /s: exec format error' }, /first line such as #!\/bin\/sh/],
  [
    1,
    { printed: 'exec /s: exec format error', imageArch: 'arm64' },
    /built for arm64, and this node is amd64; remove --platform/,
  ],
  [
    1,
    { printed: 'Error: listen EACCES: permission denied 0.0.0.0:80' },
    /may not listen on port 80; .*container_port \(now 8080\)/,
  ],
  [
    1,
    { printed: 'bind() to 0.0.0.0:443 failed (13: Permission denied)' },
    /may not listen on port 443/,
  ],
  [1, { printed: 'listen tcp :80: bind: permission denied' }, /may not listen on port 80/],
  [
    1,
    { printed: '2026-11-26T10:30:45Z listen tcp 0.0.0.0:81: bind: permission denied' },
    /may not listen on port 81;/,
  ],
  [
    1,
    {
      printed:
        'PermissionError: [Errno 13] error while attempting to bind on port 80: permission denied',
    },
    /may not listen on port 80;/,
  ],
  [1, { printed: "10:30:45 open '/data/x': permission denied" }, /may not access a file/],
  [
    1,
    { printed: 'exec /entrypoint.sh: no such file or directory' },
    /interpreter that the first line .*Windows line ends/,
  ],
  [
    1,
    { printed: 'standard_init_linux.go:228: exec user process caused: no such file or directory' },
    /Windows line ends/,
  ],
  [
    1,
    { printed: 'Error: listen EADDRNOTAVAIL: address not available ::1:8080' },
    /cannot listen on this address; .*0\.0\.0\.0:8080/,
  ],
  [1, { printed: 'bind: Cannot assign requested address' }, /cannot listen on this address/],
  [1, { printed: 'connect: cannot assign requested address' }, /exit code 1$/],
  [
    1,
    { printed: 'Error: listen EADDRINUSE: address already in use :::8080' },
    /the port is in use; another program of the same container/,
  ],
  [
    1,
    { command: ['serve', '-p', '$PORT'] },
    /CMD contains \$PORT, and without a shell it stays as it is; write the command without brackets/,
  ],
  [2, { command: ['gunicorn', '--bind', '0.0.0.0:${PORT}'] }, /CMD contains \$PORT/],
  [1, { command: ['/bin/sh', '-c', 'serve -p $PORT'] }, /exit code 1$/],
  [1, { command: ['node', '-e', 'const $PORT=1'] }, /exit code 1$/],
  [1, { printed: 'ERROR: permission denied for table users' }, /exit code 1$/],
  [1, { printed: 'git@host: Permission denied (publickey).' }, /exit code 1$/],
  [
    1,
    { printed: "Error: EROFS: read-only file system, open '/data/x'" },
    /says that a path is read-only; .*volumes/,
  ],
  [
    1,
    { printed: "PermissionError: [Errno 13] Permission denied: '/data/x'" },
    /may not access a file; .*chown/,
  ],
])(
  'an exit with code %i and %o',
  (exitCode, { oomKilled = false, error = '', ...more }, message) => {
    const failure = exitFailure({ exitCode, oomKilled, error }, { ...ended, ...more });
    expect(failure.code).toBe('container_exited');
    expect(failure.message).toMatch(message);
  },
);

it.each([
  ['docker: Error response from daemon: No command specified.', /add CMD/],
  [
    'Error response from daemon: unable to find user app: no matching entries in passwd file.',
    /USER names a user/,
  ],
  [
    'OCI runtime create failed: exec: "/no": stat /no: no such file or directory: unknown.',
    /does not contain the program.*line ends/,
  ],
  [
    'exec: "gunicorn": executable file not found in $PATH: unknown.',
    /does not contain the program/,
  ],
  [
    'OCI runtime create failed: exec: "/e.sh": permission denied: unknown.',
    /not executable.*chmod/,
  ],
  [
    'error mounting "/x" to rootfs at "/data/a": mkdirat /run/data/a: read-only file system: ' +
      'unknown.',
    /inside a read-only mount/,
  ],
  ['exec /s: exec format error', /architecture/],
  ['chdir to cwd ("/app") set in config.json failed: permission denied: unknown', /WORKDIR/],
  ['something else', /^$/],
])('the error %s of docker run', (stderr, hint) => {
  expect(startHint(stderr)).toMatch(hint);
});

it('a failed check of the image has its command, its output and the next step', () => {
  const check = { command: ['/bin/sh', '-c', 'curl -f http://localhost/'], timeoutMs: 1 };
  expect(
    checkFailure(check, { output: '/bin/sh: curl: not found', isFinal: false }, 60),
  ).toMatchObject({
    code: 'image_health_check_failed',
    message: expect.stringMatching(
      /curl -f http:\/\/localhost\/ did not pass within 60 s \(start_seconds\)\. The image may lack the program.*HEALTHCHECK NONE.*It printed: \/bin\/sh: curl: not found$/,
    ),
  });
  expect(checkFailure(check, { output: '', isFinal: true }, 60).message).toMatch(
    /did not pass\. Correct.*It printed nothing$/,
  );
});
