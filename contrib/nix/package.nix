# The package, for Nix: `pkgs.callPackage ./contrib/nix/package.nix { }`. It needs a nixpkgs that has Rust 1.95 or later.
# tests/packages.nix evaluates it, with stand-ins for nixpkgs; nobody has built it yet.
{ lib, rustPlatform }:

rustPlatform.buildRustPackage {
  pname = "shiftboss";
  version = (lib.importTOML ../../Cargo.toml).workspace.package.version;

  src = lib.cleanSourceWith {
    src = ../..;
    filter = path: type: baseNameOf path != "target" && lib.cleanSourceFilter path type;
  };
  cargoLock.lockFile = ../../Cargo.lock;

  # The programs, and what writes their man pages.
  cargoBuildFlags = [ "--package" "shiftboss" "--package" "shiftspool" "--package" "shiftboss-manual" ];
  # The tests start daemons and servers, and look at the machine around them.
  doCheck = false;

  postInstall = ''
    mv $out/bin built
    built/shiftboss-manual man
    PREFIX=$out sh contrib/install.sh built man
  '';

  meta = {
    description = "Hands out recurring work, longest-waiting first";
    license = with lib.licenses; [ mit asl20 ];
    platforms = lib.platforms.linux;
    mainProgram = "shiftboss";
  };
}
