/** An example of each command, for help and docs/cli.md: a shell line and its meaning. */
export const EXAMPLES: Readonly<Record<string, readonly [line: string, meaning: string]>> = {
  login: ['berth login https://berth.example.com', 'signs in at this address in a browser'],
  logout: ['berth logout', 'ends the session at the current address'],
  whoami: ['berth whoami', 'shows who you are, and where'],
  version: ['berth version', 'shows both versions, for a report of a problem'],
  'context list': ['berth context list', 'shows each address to which you signed in'],
  'context use': ['berth context use berth.example.com', 'sends the next commands to this address'],
  'context remove': [
    'berth context remove berth.example.com',
    'forgets the address and its tokens',
  ],
  deploy: [
    'berth deploy shop --note "new prices"',
    'deploys the newest commit of shop, with a note',
  ],
  rollback: ['berth rollback shop --to 41', 'goes back to deployment 41 of shop'],
  restart: ['berth restart shop', 'starts the running release of shop again, without a gap'],
  stop: ['berth stop shop', 'stops shop; its address answers 503 with a page'],
  start: ['berth start shop', 'starts shop with the release that it ran last'],
  failover: [
    'berth failover node-b --now',
    'moves what waits for the silent node-b, past the brake',
  ],
  scale: ['berth scale web=3 --project shop', 'runs three instances of shop, at once'],
  ps: ['berth ps shop', 'shows each instance of shop: its node, state, version and usage'],
  run: [
    'berth run -p shop -- node migrate.js --to 42',
    'runs a migration of shop, and ends with its exit code',
  ],
  'process list': [
    'berth process list shop',
    'shows how many instances of each process shop wants',
  ],
  'process set': [
    'berth process set worker -p shop --count 2 -- node worker.js',
    'adds a process beside web; berth deploy starts it',
  ],
  'process remove': [
    'berth process remove worker -p shop',
    'ends a process with the next deployment',
  ],
  'job list': ['berth job list shop', 'shows each job of shop, its last run and its next time'],
  'job add': [
    'berth job add report -p shop --schedule "0 6 * * MON" --timezone Europe/Berlin -- node report.js',
    'runs a report of shop on Mondays at six',
  ],
  'job show': ['berth job show report -p shop', 'shows the next three times of a job'],
  'job edit': ['berth job edit report -p shop --disable', 'pauses a job'],
  'job delete': ['berth job delete report -p shop', 'deletes a job; its runs stay'],
  'job run': ['berth job run report -p shop', 'starts a run of a job now, and follows it'],
  'job runs': ['berth job runs report -p shop', 'shows the last runs of a job, also missed times'],
  'runs list': ['berth runs list shop --status failed', 'shows the failed runs of shop'],
  'runs show': ['berth runs show 5f0c2d1e', 'shows how a run ended, and where'],
  'runs logs': ['berth runs logs 5f0c2d1e -f', 'follows a run that was started with --detach'],
  'runs cancel': ['berth runs cancel 5f0c2d1e', 'stops the command of a run'],
  exec: ['berth exec --project shop -- /bin/sh', 'opens a shell in a container of shop'],
  tunnel: ['berth tunnel shop 5433', 'leads 127.0.0.1:5433 to the port of shop, until Ctrl-C'],
  cancel: ['berth cancel shop', 'cancels the newest deployment of shop'],
  'config check': ['berth config check', 'checks berth.toml of this folder, without signing in'],
  'config show': ['berth config show shop', 'prints the settings of shop as berth.toml'],
  'deployment list': [
    'berth deployment list shop --status failed',
    'shows the failed deployments of shop',
  ],
  'deployment show': ['berth deployment show dep_123', 'shows the story of a deployment'],
  'deployment watch': [
    'berth deployment watch dep_123',
    'follows a deployment that runs without you',
  ],
  status: ['berth status shop', 'shows what serves, since when, and what is in progress'],
  logs: ['berth logs shop -f', 'prints the log of shop, and new lines as they arrive'],
  metrics: [
    'berth metrics shop --since 6h',
    'shows the CPU, memory and network of shop in the last six hours',
  ],
  open: ['berth open shop', 'opens the address of shop in a browser'],
  placement: ['berth placement shop', 'shows which node would get shop now, and why'],
  events: ['berth events --project shop -f', 'prints the changes of shop as they happen'],
  'project list': ['berth project list', 'shows each project with its address'],
  'project create': [
    'berth project create shop --git-url https://git.example.com/you/shop.git',
    'creates the project shop, built from this repository',
  ],
  'project look': [
    'berth project look https://git.example.com/you/shop.git',
    'lists its branches, and its Dockerfiles with their ports',
  ],
  'project show': ['berth project show shop', 'shows the settings of shop'],
  'project edit': [
    'berth project edit shop --memory-bytes 512MiB',
    'limits shop to 512 MiB of memory',
  ],
  'project members list': [
    'berth project members list shop',
    'shows who may see shop, besides admins',
  ],
  'project members add': [
    'berth project members add ada@example.com --role developer --project shop',
    'from now on only the members of shop and admins see it',
  ],
  'project members remove': [
    'berth project members remove ada@example.com --project shop',
    'shop does not exist for Ada any more',
  ],
  'project delete': ['berth project delete shop', 'asks, then deletes shop and its containers'],
  link: ['berth link shop', 'makes shop the project of this folder'],
  'env list': ['berth env list shop', 'shows the variables of shop'],
  'env set': [
    'printf %s production | berth env set MODE --project shop',
    'sets MODE of shop to “production”',
  ],
  'env import': [
    'berth env import .env --project shop --dry-run',
    'shows which variables of .env would be added or changed',
  ],
  'env unset': ['berth env unset MODE --project shop', 'removes MODE of shop'],
  'deploy-key create': [
    'berth deploy-key create shop',
    'makes a key pair and prints the public key for the forge',
  ],
  'deploy-key show': ['berth deploy-key show shop', 'prints the public key again'],
  'deploy-key delete': ['berth deploy-key delete shop', 'asks, then deletes the key pair'],
  'git-token set': [
    'berth git-token set shop < token.txt',
    'reads the repository of shop with this token',
  ],
  'git-token show': [
    'berth git-token show shop',
    'shows the host of the token and who set it, not the token',
  ],
  'git-token delete': ['berth git-token delete shop', 'asks, then deletes the token'],
  'git-host list': [
    'berth git-host list',
    'shows the trusted keys of each host, and keys that a builder saw',
  ],
  'git-host show': ['berth git-host show git.example.com', 'shows the keys of one host'],
  'git-host trust': [
    'berth git-host trust git.example.com SHA256:uNiVztksCsDhcc0u9e8BrVMM0KnSuPSLXyA8TfPl5eQ ' +
      '--type ssh-ed25519',
    'trusts a key that the operator of the host published',
  ],
  'git-host delete': [
    'berth git-host delete git.example.com',
    'asks, then forgets the keys of the host',
  ],
  'domain list': ['berth domain list shop', 'shows the custom domains of shop and where they lead'],
  'domain add': [
    'berth domain add www.example.com --project shop',
    'publishes shop at www.example.com too',
  ],
  'domain remove': [
    'berth domain remove www.example.com --project shop',
    'asks, then ends that address of shop',
  ],
  'domain free': [
    'berth domain free old.shop.example',
    'asks, then lets another project have a domain that is kept for its last one',
  ],
  'domain check': [
    'berth domain check shop',
    'shows what is wrong with the domains of shop, and what to do',
  ],
  'hook create': [
    'berth hook create shop --forge github',
    'prints the address and the secret to enter at GitHub',
  ],
  'hook show': ['berth hook show shop', 'shows the address of the hook, not its secret'],
  'hook delete': ['berth hook delete shop', 'asks, then deletes the hook'],
  'hook deliveries': [
    'berth hook deliveries shop -n 10',
    'shows the last ten deliveries and what became of them',
  ],
  'notification list': [
    'berth notification list',
    'lists the notifications and whether their deliveries fail',
  ],
  'notification create': [
    'printf %s "$SLACK_URL" | berth notification create team --kind slack --on ' +
      'failed,unhealthy,recovered',
    'reads the address from standard input, because it is a secret',
  ],
  'notification show': [
    'berth notification show team',
    'shows a notification; its target is masked',
  ],
  'notification edit': [
    'berth notification edit team --on failed,node_offline',
    'reports other kinds of problems',
  ],
  'notification delete': ['berth notification delete team', 'asks, then deletes the notification'],
  'notification test': [
    'berth notification test team',
    'sends a test now and says what the target answered',
  ],
  'notification deliveries': [
    'berth notification deliveries team -n 10',
    'shows the last ten deliveries',
  ],
  'hook delivery': ['berth hook delivery del_123 --project shop', 'shows one delivery'],
  'hook redeliver': ['berth hook redeliver del_123 --project shop', 'checks the branch again'],
  'secret list': ['berth secret list shop', 'shows the names of the secrets of shop'],
  'secret show': [
    'berth secret show API_KEY --project shop',
    'shows who set API_KEY and when, not its value',
  ],
  'secret set': [
    'berth secret set API_KEY --project shop < key.txt',
    'sets API_KEY of shop to the content of the file',
  ],
  'secret unset': [
    'berth secret unset API_KEY --project shop',
    'asks, then deletes API_KEY of shop',
  ],
  'secret import': [
    'berth secret import API_KEY --project shop',
    'makes a secret of the variable API_KEY',
  ],
  'node list': [
    'berth node list',
    'shows each machine, when it was last seen, and its free storage',
  ],
  'node show': ['berth node show node-1', 'shows one machine'],
  'node cordon': ['berth node cordon node-1', 'gives node-1 no new work'],
  'node uncordon': ['berth node uncordon node-1', 'gives node-1 work again'],
  'node label': [
    'berth node label node-1 zone=a disk-',
    'sets the label zone, and removes the label disk that an admin set',
  ],
  'node drain': [
    'berth node drain node-1',
    'moves the projects of node-1 to other nodes, before maintenance',
  ],
  'node delete': [
    'berth node delete node-1',
    'asks, then moves the projects of node-1 and forgets it',
  ],
  'node reset-secret': [
    'berth node reset-secret node-1',
    'lets node-1 join again after it lost its secret',
  ],
  'node removed': [
    'berth node removed node-1 svc-shop',
    'tells Berth that somebody removed svc-shop on node-1',
  ],
  'node prewarm': [
    'berth node prewarm node-1 prices',
    'copies the dataset prices to node-1 in advance',
  ],
  'node volumes': [
    'berth node volumes node-1',
    'lists the volumes on node-1, also those of deleted projects',
  ],
  'node volumes delete': [
    'berth node volumes delete node-1 vol_123',
    'asks, then deletes volumes that no project uses',
  ],
  'node disk': [
    'berth node disk node-1 --bytes 20GiB',
    'shows what uses the disk, and what would be evicted for 20 GiB, and why',
  ],
  'node cache': [
    'berth node cache node-1 --bytes 20GiB',
    'shows whether 20 GiB would fit, and what would be evicted',
  ],
  'node join-token': [
    'berth node join-token --role builder',
    'prints the command that makes a new machine a builder',
  ],
  'node join-token list': [
    'berth node join-token list',
    'shows the tokens that were made, and which are used',
  ],
  'node join-token delete': ['berth node join-token delete jt_123', 'makes a token worthless'],
  'node admission create': [
    'berth node admission create --hostname node-9 --role deploy',
    'admits a contract-only node',
  ],
  'node admission list': ['berth node admission list', 'shows the admitted contract-only nodes'],
  'node admission delete': ['berth node admission delete adm_123', 'withdraws an admission'],
  'clean-up': [
    'berth clean-up',
    'shows what the last clean-up of the registry removed, and when the next one comes',
  ],
  'dataset list': ['berth dataset list', 'shows each dataset with its newest version'],
  'dataset create': [
    'berth dataset create prices --nfs-path finance/prices',
    'registers a folder of the share',
  ],
  'dataset show': ['berth dataset show prices', 'shows the state of prices'],
  'dataset edit': ['berth dataset edit prices --name tariffs', 'renames prices'],
  'dataset delete': [
    'berth dataset delete prices',
    'asks, then forgets prices; the files on the share stay',
  ],
  'dataset scan': ['berth dataset scan prices', 'looks for changes now'],
  'dataset versions': ['berth dataset versions prices', 'shows the versions of prices'],
  'dataset diff': [
    'berth dataset diff prices 3 7',
    'shows the files in which the versions 3 and 7 differ',
  ],
  'dataset history': [
    'berth dataset history prices --version 7',
    'shows the files that version 7 changed',
  ],
  'user list': ['berth user list', 'shows each user with the role'],
  'user create': [
    'berth user create ada@example.com --role developer',
    'lets Ada sign in as a developer',
  ],
  'user show': ['berth user show ada@example.com', 'shows the account of Ada'],
  'user edit': ['berth user edit ada@example.com --disable', 'ends the sessions and tokens of Ada'],
  'user delete': ['berth user delete ada@example.com', 'asks, then deletes the account of Ada'],
  'user password': ['berth user password', 'asks for the old and the new password'],
  'token list': ['berth token list', 'shows your tokens and when each was last used'],
  'token create': [
    'berth token create ci --role developer --expires 30',
    'prints a token for a pipeline, valid for 30 days',
  ],
  'token delete': ['berth token delete tok_123', 'revokes a token'],
  'device list': ['berth device list', 'shows the devices that signed in'],
  'device delete': ['berth device delete dev_123', 'signs a device out'],
  audit: [
    'berth audit --user ada@example.com --since 2026-11-01T00:00:00Z',
    'shows what Ada changed this month',
  ],
  mcp: ['berth mcp --http 127.0.0.1:7332', 'answers the assistants of this machine at port 7332'],
  completion: ['source <(berth completion bash)', 'completes commands in this bash'],
};
