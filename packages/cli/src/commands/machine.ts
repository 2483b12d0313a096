/**
 * Commands that run on a machine of Berth and not through the API. `bin/launch.mjs` starts them,
 * and each one prints its own help. Help, completion and docs/cli.md are made from this table.
 * test/structure.test.ts compares it with the programs.
 */

export type MachineCommand = {
  summary: string;
  /** Subcommands and what they do. */
  verbs?: Readonly<Record<string, string>>;
  /** All options that the command's help names. */
  options: readonly string[];
  example: readonly [line: string, meaning: string];
};

const ROLES = {
  'control-plane': 'API, scheduler, database',
  gateway: 'logins',
  registry: 'images',
  proxy: 'Traefik',
  agent: 'builds or runs containers',
};

export const MACHINE_COMMANDS: Readonly<Record<string, MachineCommand>> = {
  doctor: {
    summary: 'Check this machine: what is wrong, what it causes, what to do',
    verbs: { ...ROLES, relay: 'keeps the last configuration of the proxy' },
    options: ['--json'],
    example: ['berth doctor', 'checks every role that this machine has settings for'],
  },
  install: {
    summary: 'Write the settings and secrets of this machine, and start its units',
    verbs: { ...ROLES, all: 'all roles' },
    options: [
      ...[
        '--compose',
        '--start',
        '--dry-run',
        '--yes',
        '--base-domain',
        '--admin',
        '--internal-address',
        '--package',
        '--control-plane',
        '--gateway',
      ],
      ...[
        '--gateway-secret-file',
        '--registry',
        '--registry-user',
        '--registry-password-file',
        '--acme-email',
        '--acme-ca-server',
      ],
      ...[
        '--acme-challenge',
        '--traefik',
        '--proxy-address',
        '--role',
        '--name',
        '--join-token-file',
      ],
    ],
    example: ['berth install control-plane --dry-run', 'prints each change and makes none'],
  },
  upgrade: {
    summary: 'Say what an upgrade would do and what must be done first',
    options: ['--check', '--json'],
    example: [
      'berth upgrade --check ./berth_0.2.0_amd64.deb',
      'compares this package with the running system',
    ],
  },
  backup: {
    summary: 'Make a backup while Berth runs, list backups, or check one',
    verbs: {
      list: 'List the backups of a place',
      verify: 'Restore a backup to a scratch place and check it',
    },
    options: ['--to', '--recipient', '--with-keys', '--identity', '--json'],
    example: [
      'berth backup --to /mnt/backups',
      'writes one file that has the whole state of Berth',
    ],
  },
  restore: {
    summary: 'Restore a backup into an empty place',
    options: ['--identity', '--as-new', '--json'],
    example: ['berth restore /mnt/backups/berth-….tar.gz', 'restores this backup'],
  },
  export: {
    summary: 'Write the database as JSON lines',
    options: ['--logs'],
    example: [
      'berth export > berth.jsonl',
      'writes everything except sessions, device codes and logs',
    ],
  },
  import: {
    summary: 'Read an export into an empty database',
    options: [],
    example: ['berth import < berth.jsonl', 'reads the file into the database of DATABASE_URL'],
  },
  schema: {
    summary: 'Print the schema of the database and of this version',
    options: [],
    example: ['berth schema', 'shows whether the database is newer or older than the programs'],
  },
  rotate: {
    summary: 'Replace a shared secret while Berth runs, or show who uses the earlier one',
    verbs: {
      agent: 'AGENT_SECRET, of agents without a secret of their own',
      gateway: 'GATEWAY_SECRET, between control plane and gateways',
      session: 'SESSION_SECRET, of people who signed in',
      jwt: 'JWT_SECRET, of API tokens',
      secrets: 'SECRETS_KEY, which encrypts the keys of projects',
    },
    options: [
      '--status',
      '--finish',
      '--force',
      '--again',
      '--from',
      '--pid',
      '--no-reload',
      '--etc',
    ],
    example: ['berth rotate session', 'puts a new value in front; nobody is signed out'],
  },
  rotation: {
    summary: 'Print which value of each secret every process has, as JSON',
    options: [],
    example: ['berth rotation', 'shows fingerprints, never values'],
  },
  admin: {
    summary: 'Recover an admin when nobody can sign in',
    verbs: { recover: 'Make an account an enabled admin with a new password' },
    options: ['--password-stdin', '--end-tokens'],
    example: [
      'berth admin recover ada@example.com',
      'makes Ada an admin and prints a new password',
    ],
  },
};
