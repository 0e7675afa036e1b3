# Evaluates contrib/nix: tests/packages.sh calls it. What the two files use of nixpkgs, which is not at hand there, is stood in for;
# so this finds what is misspelt or missing in them, not whether NixOS takes them.
let
  lib = {
    mkEnableOption = description: { inherit description; };
    mkOption = option: option;
    mkIf = condition: content: if condition then content else null;
    mkDefault = value: value;
    inherit (builtins) mapAttrs;
    getExe = package: "${package}/bin/${package.meta.mainProgram}";
    literalExpression = text: text;
    types = { package = "package"; str = "str"; listOf = type: "listOf ${type}"; };
    importTOML = path: builtins.fromTOML (builtins.readFile path);
    cleanSourceWith = { src, filter }: assert !filter "/x/target" "directory"; assert filter "/x/src" "directory"; src;
    cleanSourceFilter = path: type: true;
    licenses = { mit = "mit"; asl20 = "asl20"; };
    platforms.linux = [ "x86_64-linux" ];
  };
  rustPlatform.buildRustPackage = attributes: attributes // { outPath = "/nix/store/shiftboss"; };
  pkgs = {
    callPackage = file: arguments: import file ({ inherit lib rustPlatform; } // arguments);
    formats.toml = _: { type = "toml"; generate = name: settings: "${name} ${builtins.toJSON settings}"; };
  };
  utils.escapeSystemdExecArgs = builtins.concatStringsSep " ";
  package = pkgs.callPackage ../contrib/nix/package.nix { };
  module = import ../contrib/nix/module.nix {
    inherit lib pkgs utils;
    config.services.shiftboss = {
      enable = true;
      package = options.package.default;
      settings = module.config.services.shiftboss.settings;
      web = { enable = true; flags = [ "--listen" "127.0.0.1:8080" ]; };
    };
  };
  options = module.options.services.shiftboss;
  services = module.config.systemd.services;
in
assert package.version == (lib.importTOML ../Cargo.toml).workspace.package.version;
assert builtins.pathExists package.cargoLock.lockFile;
assert builtins.attrNames options == [ "enable" "package" "settings" "web" ];
assert services.shiftboss.wantedBy == [ "multi-user.target" ];
assert services.shiftboss-web.serviceConfig.ExecStart
  == [ "" "/nix/store/shiftboss/bin/shiftboss web --listen 127.0.0.1:8080" ];
builtins.deepSeq [ package module ] module.config.environment.etc."shiftboss.toml".source
