/**
 * Types of the Docker Engine API 1.41, written by scripts/engine-api.ts from the API's own OpenAPI
 * document. Do not edit. Engines leave out fields, and send null where the
 * document does not say so.
 */

export interface EngineApi {
  'GET /version': {
    answer: EngineApi['SystemVersion'];
  };
  'GET /info': {
    answer: EngineApi['SystemInfo'];
  };
  'GET /events': {
    query: {
      since?: string;
      until?: string;
      filters?: string;
    };
    answer: EngineApi['EventMessage'];
  };
  'GET /system/df': {
    answer: {
      LayersSize?: number;
      Images?: EngineApi['ImageSummary'][];
      BuildCache?: EngineApi['BuildCache'][];
    };
  };
  'POST /auth': {
    body: EngineApi['AuthConfig'];
    answer: {
      Status: string;
      IdentityToken?: string;
    };
  };
  'POST /build/prune': {
    query: {
      'keep-storage'?: number;
      all?: boolean;
      filters?: string;
    };
    answer: {
      CachesDeleted?: string[];
      SpaceReclaimed?: number;
    };
  };
  'GET /containers/json': {
    query: {
      all?: boolean;
      limit?: number;
      size?: boolean;
      filters?: string;
    };
    answer: EngineApi['ContainerSummary'][];
  };
  'POST /containers/create': {
    query: {
      name?: string;
      platform?: string;
    };
    body: EngineApi['ContainerConfig'] & {
      HostConfig?: EngineApi['HostConfig'];
      NetworkingConfig?: EngineApi['NetworkingConfig'];
    };
    answer: {
      Id: string;
      Warnings: string[];
    };
  };
  'GET /containers/{id}/json': {
    query: {
      size?: boolean;
    };
    answer: {
      Id?: string;
      State?: EngineApi['ContainerState'];
      Image?: string;
      Name?: string;
      RestartCount?: number;
      HostConfig?: EngineApi['HostConfig'];
      Config?: EngineApi['ContainerConfig'];
      NetworkSettings?: EngineApi['NetworkSettings'];
    };
  };
  'GET /containers/{id}/logs': {
    query: {
      follow?: boolean;
      stdout?: boolean;
      stderr?: boolean;
      since?: number;
      until?: number;
      timestamps?: boolean;
      tail?: string;
    };
    answer: string;
  };
  'GET /containers/{id}/archive': {
    query: {
      path?: string;
    };
  };
  'POST /containers/{id}/start': {
    query: {
      detachKeys?: string;
    };
  };
  'POST /containers/{id}/stop': {
    query: {
      t?: number;
    };
  };
  'POST /containers/{id}/restart': {
    query: {
      t?: number;
    };
  };
  'POST /containers/{id}/rename': {
    query: {
      name?: string;
    };
  };
  'POST /containers/{id}/update': {
    body: EngineApi['Resources'] & {
      RestartPolicy?: EngineApi['RestartPolicy'];
    };
    answer: {
      Warnings?: string[];
    };
  };
  'POST /containers/{id}/wait': {
    query: {
      condition?: string;
    };
    answer: EngineApi['ContainerWaitResponse'];
  };
  'POST /containers/{id}/attach': {
    query: {
      detachKeys?: string;
      logs?: boolean;
      stream?: boolean;
      stdin?: boolean;
      stdout?: boolean;
      stderr?: boolean;
    };
  };
  'POST /containers/{id}/exec': {
    body: {
      AttachStdin?: boolean;
      AttachStdout?: boolean;
      AttachStderr?: boolean;
      DetachKeys?: string;
      Tty?: boolean;
      Env?: string[];
      Cmd?: string[];
      Privileged?: boolean;
      User?: string;
      WorkingDir?: string;
    };
    answer: EngineApi['IdResponse'];
  };
  'DELETE /containers/{id}': {
    query: {
      v?: boolean;
      force?: boolean;
      link?: boolean;
    };
  };
  'POST /exec/{id}/resize': {
    query: {
      h?: number;
      w?: number;
    };
  };
  'GET /exec/{id}/json': {
    answer: {
      Running?: boolean;
      ExitCode?: number;
    };
  };
  'POST /exec/{id}/start': {
    body: {
      Detach?: boolean;
      Tty?: boolean;
    };
  };
  'GET /images/json': {
    query: {
      all?: boolean;
      filters?: string;
      digests?: boolean;
    };
    answer: EngineApi['ImageSummary'][];
  };
  'POST /images/create': {
    query: {
      fromImage?: string;
      fromSrc?: string;
      repo?: string;
      tag?: string;
      message?: string;
      changes?: unknown[];
      platform?: string;
    };
    body: string;
  };
  'GET /images/{name}/json': {
    answer: EngineApi['ImageInspect'];
  };
  'DELETE /images/{name}': {
    query: {
      force?: boolean;
      noprune?: boolean;
    };
    answer: EngineApi['ImageDeleteResponseItem'][];
  };
  'GET /networks': {
    query: {
      filters?: string;
    };
    answer: EngineApi['Network'][];
  };
  'POST /networks/create': {
    body: {
      Name: string;
      CheckDuplicate?: boolean;
      Driver?: string;
      Scope?: string;
      Internal?: boolean;
      Attachable?: boolean;
      Ingress?: boolean;
      ConfigOnly?: boolean;
      ConfigFrom?: EngineApi['ConfigReference'];
      IPAM?: EngineApi['IPAM'];
      EnableIPv6?: boolean;
      Options?: {
        [key: string]: string;
      };
      Labels?: {
        [key: string]: string;
      };
    };
    answer: {
      Id?: string;
      Warning?: string;
    };
  };
  'GET /networks/{id}': {
    query: {
      verbose?: boolean;
      scope?: string;
    };
    answer: EngineApi['Network'];
  };
  'DELETE /networks/{id}': Record<string, never>;
  DeviceRequest: {
    Driver?: string;
    Count?: number;
    DeviceIDs?: string[];
    Capabilities?: string[][];
    Options?: {
      [key: string]: string;
    };
  };
  Mount: {
    Target?: string;
    Source?: string;
    /** @enum {string} */
    Type?: 'bind' | 'volume' | 'tmpfs' | 'npipe';
    ReadOnly?: boolean;
  };
  RestartPolicy: {
    /** @enum {string} */
    Name?: '' | 'no' | 'always' | 'unless-stopped' | 'on-failure';
    MaximumRetryCount?: number;
  };
  Resources: {
    Memory?: number;
    DeviceRequests?: EngineApi['DeviceRequest'][];
    MemorySwap?: number;
    NanoCpus?: number;
    PidsLimit?: number | null;
  };
  HealthConfig: {
    Test?: string[];
    Interval?: number;
    Timeout?: number;
    Retries?: number;
    StartPeriod?: number;
  };
  Health: {
    /** @enum {string} */
    Status?: 'none' | 'starting' | 'healthy' | 'unhealthy';
    FailingStreak?: number;
    Log?: EngineApi['HealthcheckResult'][];
  } | null;
  HealthcheckResult: {
    Start?: string;
    End?: string;
    ExitCode?: number;
    Output?: string;
  } | null;
  HostConfig: EngineApi['Resources'] & {
    LogConfig?: {
      /** @enum {string} */
      Type?:
        | 'json-file'
        | 'syslog'
        | 'journald'
        | 'gelf'
        | 'fluentd'
        | 'awslogs'
        | 'splunk'
        | 'etwlogs'
        | 'none';
      Config?: {
        [key: string]: string;
      };
    };
    NetworkMode?: string;
    PortBindings?: EngineApi['PortMap'];
    RestartPolicy?: EngineApi['RestartPolicy'];
    Mounts?: EngineApi['Mount'][];
    CapDrop?: string[];
    SecurityOpt?: string[];
  };
  ContainerConfig: {
    ExposedPorts?: {
      [key: string]: unknown;
    } | null;
    AttachStdin?: boolean;
    Tty?: boolean;
    OpenStdin?: boolean;
    StdinOnce?: boolean;
    Env?: string[];
    Cmd?: string[];
    Image?: string;
    Entrypoint?: string[];
    Labels?: {
      [key: string]: string;
    };
    StopSignal?: string | null;
  };
  ImageConfig: {
    User?: string;
    ExposedPorts?: {
      [key: string]: unknown;
    } | null;
    Env?: string[];
    Cmd?: string[];
    Healthcheck?: EngineApi['HealthConfig'];
    Volumes?: {
      [key: string]: unknown;
    };
    Entrypoint?: string[];
    Shell?: string[] | null;
  };
  NetworkingConfig: {
    EndpointsConfig?: {
      [key: string]: EngineApi['EndpointSettings'];
    };
  };
  NetworkSettings: {
    Ports?: EngineApi['PortMap'];
    Networks?: Record<string, { IPAddress?: string }>;
  };
  PortMap: {
    [key: string]: EngineApi['PortBinding'][] | null;
  };
  PortBinding: {
    HostIp?: string;
    HostPort?: string;
  };
  ImageInspect: {
    Id?: string;
    Config?: EngineApi['ImageConfig'];
    Architecture?: string;
    Variant?: string | null;
    Size?: number;
  };
  ImageSummary: {
    Id: string;
    RepoTags: string[];
    RepoDigests: string[];
    Created: number;
    Size: number;
    SharedSize: number;
  };
  AuthConfig: {
    username?: string;
    password?: string;
    email?: string;
    serveraddress?: string;
  };
  Network: {
    Name?: string;
    Id?: string;
    Created?: string;
    IPAM?: EngineApi['IPAM'];
    Options?: {
      [key: string]: string;
    };
    Labels?: {
      [key: string]: string;
    };
  };
  ConfigReference: {
    Network?: string;
  };
  IPAM: {
    Driver?: string;
    Config?: EngineApi['IPAMConfig'][];
    Options?: {
      [key: string]: string;
    };
  };
  IPAMConfig: {
    Subnet?: string;
    IPRange?: string;
    Gateway?: string;
    AuxiliaryAddresses?: {
      [key: string]: string;
    };
  };
  BuildCache: {
    ID?: string;
    Parent?: string;
    /** @enum {string} */
    Type?:
      | 'internal'
      | 'frontend'
      | 'source.local'
      | 'source.git.checkout'
      | 'exec.cachemount'
      | 'regular';
    Description?: string;
    InUse?: boolean;
    Shared?: boolean;
    Size?: number;
    CreatedAt?: string;
    LastUsedAt?: string | null;
    UsageCount?: number;
  };
  IdResponse: {
    Id: string;
  };
  EndpointSettings: {
    IPAMConfig?: EngineApi['EndpointIPAMConfig'];
    Links?: string[];
    Aliases?: string[];
    NetworkID?: string;
    EndpointID?: string;
    Gateway?: string;
    IPAddress?: string;
    IPPrefixLen?: number;
    IPv6Gateway?: string;
    GlobalIPv6Address?: string;
    GlobalIPv6PrefixLen?: number;
    MacAddress?: string;
    DriverOpts?: {
      [key: string]: string;
    } | null;
  };
  EndpointIPAMConfig: {
    IPv4Address?: string;
    IPv6Address?: string;
    LinkLocalIPs?: string[];
  } | null;
  ImageDeleteResponseItem: {
    Untagged?: string;
    Deleted?: string;
  };
  ContainerSummary: {
    Id?: string;
    ImageID?: string;
    Labels?: {
      [key: string]: string;
    };
  };
  ContainerState: {
    /** @enum {string} */
    Status?: 'created' | 'running' | 'paused' | 'restarting' | 'removing' | 'exited' | 'dead';
    Running?: boolean;
    Paused?: boolean;
    Restarting?: boolean;
    OOMKilled?: boolean;
    Dead?: boolean;
    Pid?: number;
    ExitCode?: number;
    Error?: string;
    StartedAt?: string;
    FinishedAt?: string;
    Health?: EngineApi['Health'];
  } | null;
  ContainerWaitResponse: {
    StatusCode: number;
    Error?: EngineApi['ContainerWaitExitError'];
  };
  ContainerWaitExitError: {
    Message?: string;
  };
  SystemVersion: {
    Version?: string;
    ApiVersion?: string;
    MinAPIVersion?: string;
    Arch?: string;
  };
  SystemInfo: {
    DockerRootDir?: string;
    NCPU?: number;
    MemTotal?: number;
    RegistryConfig?: EngineApi['RegistryServiceConfig'];
  };
  RegistryServiceConfig: {
    InsecureRegistryCIDRs?: string[];
    IndexConfigs?: {
      [key: string]: EngineApi['IndexInfo'];
    };
  } | null;
  IndexInfo: {
    Name?: string;
    Mirrors?: string[];
    Secure?: boolean;
    Official?: boolean;
  } | null;
  EventActor: {
    ID?: string;
    Attributes?: {
      [key: string]: string;
    };
  };
  EventMessage: {
    /** @enum {string} */
    Type?:
      | 'builder'
      | 'config'
      | 'container'
      | 'daemon'
      | 'image'
      | 'network'
      | 'node'
      | 'plugin'
      | 'secret'
      | 'service'
      | 'volume';
    Action?: string;
    Actor?: EngineApi['EventActor'];
    time?: number;
    timeNano?: number;
  };
}
