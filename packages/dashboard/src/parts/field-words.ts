/** Labels of project fields. Every page needs labels for errors, so this file loads no schema. */

export type Words = {
  label: string;
  help?: string;
  step?: number;
  scale?: { by: number; max: number };
};
/** Bytes. */
export const MIB = 1_048_576;
export const WORDS: Readonly<Record<string, Words>> = {
  git_url: { label: 'Git address' },
  branch: { label: 'Branch' },
  dockerfile_path: { label: 'Dockerfile' },
  build_context: { label: 'Build context' },
  build_target: { label: 'Build target', help: 'a stage of the Dockerfile; empty: the last one' },
  domain_prefix: { label: 'Domain prefix' },
  container_port: { label: 'Container port' },
  health_path: { label: 'Health path', help: 'empty: every HTTP answer is healthy' },
  memory_bytes: {
    label: 'Memory (MiB)',
    help: 'the most that its container gets; empty: the limit of the node',
    scale: { by: MIB, max: 6 },
  },
  cpus: { label: 'CPUs', help: 'the most that its container gets; empty: no limit', step: 0.5 },
  requires: {
    label: 'Requirements',
    help:
      'what a node must have: label:zone=a, arch:amd64 or device:nvidia.com/gpu=1; ' +
      'empty: every node is possible',
  },
  start_seconds: {
    label: 'Start (seconds)',
    help: 'time to answer and to pass its HEALTHCHECK, 1 to 3600; empty: the setting PROBE_TIMEOUT',
  },
  drain_seconds: {
    label: 'Drain (seconds)',
    help: 'running requests of the old version get this long',
  },
  stop_grace_seconds: { label: 'Stop grace (seconds)', help: 'time between SIGTERM and SIGKILL' },
  replace: {
    label: 'Replace',
    help: 'rolling: the new version starts beside the old one; recreate: the old one stops first',
  },
  processes: { label: 'Instances' },
  web: { label: 'Number of instances' },
  spread: {
    label: 'Spread of instances',
    help:
      'nodes: each instance gets a node of its own while there are enough; pack: the score alone ' +
      'decides; takes effect with the next instance',
  },
  sticky: {
    label: 'Sticky: a cookie keeps a visitor on one instance; takes effect at once',
  },
  on_node_lost: {
    label: 'On a lost node',
    help:
      'move: its instances start on another node; wait: they wait for the node; takes effect at ' +
      'once',
  },
  allow_exec: {
    label: 'Allow exec and tunnels: commands in its containers; takes effect at once',
  },
  exec_role: {
    label: 'Role for exec and tunnels',
    help: 'the lowest role in the project that may use them; only admins change it',
  },
  on_dataset_change: {
    label: 'On dataset change',
    help: 'what a new version of a dataset does: an event (tell), or also a deployment',
  },
  data_copies: {
    label: 'Data copies',
    help: 'nodes that keep the datasets of the running deployment; takes effect at once',
  },
  submodules: { label: 'Fetch submodules' },
  git_lfs: { label: 'Fetch Git LFS files', help: 'off: the build gets their pointers instead' },
  auth_required: { label: 'Require Auth: visitors must sign in' },
  cors_origins: {
    label: 'Origins that may call it',
    help:
      'pages of these origins, such as https://app.example.com, may send requests although ' +
      'visitors must sign in',
  },
  deploy_on_push: { label: 'Deploy on push' },
  watch_paths: {
    label: 'Watch paths',
    help: 'deploy on push only if a file under these paths changed; empty: always',
  },
  build_args: {
    label: 'Build arguments',
    help:
      'one NAME=value in a line; they stay readable in the image, ' +
      'so a secret is a build secret',
  },
};

/** Returns the default label of a field: `env_names` becomes "Env names". */
export const wordsOf = (name: string): string =>
  (name.charAt(0).toUpperCase() + name.slice(1)).replaceAll('_', ' ');
/** Returns the label of a project field, for use in sentences. */
export const labelOf = (name: string): string =>
  WORDS[name]?.label ?? (/^[a-z_]+$/.test(name) ? wordsOf(name) : name);
